"""What a distributed tensor costs on the host, beside plain tensors and torch.distributed.tensor."""
