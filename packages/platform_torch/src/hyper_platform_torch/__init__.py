"""The PyTorch adapter: ``TorchPlatform`` and its DTensor."""

from hyper_platform_torch.compiled import keep_out_of_graphs
from hyper_platform_torch.initialisers import make_overridable
from hyper_platform_torch.platform import TorchPlatform as TorchPlatform
from hyper_platform_torch.tensor import TorchDTensor as TorchDTensor

make_overridable()
keep_out_of_graphs()
