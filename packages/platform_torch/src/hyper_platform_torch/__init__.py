"""The PyTorch adapter: ``TorchPlatform`` and its DTensor."""

from hyper_platform_torch.platform import TorchPlatform as TorchPlatform
from hyper_platform_torch.tensor import TorchDTensor as TorchDTensor
