"""The MindSpore adapter: ``MindSporePlatform`` and its DTensor."""

from hyper_platform_ms.autograd import watch_computations
from hyper_platform_ms.interception import intercept
from hyper_platform_ms.platform import MindSporePlatform as MindSporePlatform
from hyper_platform_ms.tensor import MindSporeDTensor as MindSporeDTensor

watch_computations()
intercept()
