"""What a distributed tensor costs on the host under MindSpore, beside plain tensors and bare interception."""
