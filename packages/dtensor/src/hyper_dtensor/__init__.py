"""The distributed tensor, its gradient states and the platform protocol."""

from hyper_dtensor.clip_grad import clip_grad_norm_ as clip_grad_norm_
from hyper_dtensor.comm_debug import CommDebugMode as CommDebugMode
from hyper_dtensor.comm_debug import Communication as Communication
from hyper_dtensor.distribute import distribute_module as distribute_module
from hyper_dtensor.distribute import distribute_parameter as distribute_parameter
from hyper_dtensor.distribute import distribute_tensor as distribute_tensor
from hyper_dtensor.dtensor import DTensor as DTensor
from hyper_dtensor.dtensor import is_dtensor as is_dtensor
from hyper_dtensor.dtensor import wrap as wrap
from hyper_dtensor.factories import empty as empty
from hyper_dtensor.factories import full as full
from hyper_dtensor.factories import ones as ones
from hyper_dtensor.factories import rand as rand
from hyper_dtensor.factories import randn as randn
from hyper_dtensor.factories import zeros as zeros
from hyper_dtensor.implicit import implicit_replication as implicit_replication
from hyper_dtensor.implicit import is_implicit as is_implicit
from hyper_dtensor.local_map import local_map as local_map
from hyper_dtensor.mesh import init_device_mesh as init_device_mesh
from hyper_dtensor.platform import Platform as Platform
from hyper_dtensor.platform import get_platform as get_platform
from hyper_dtensor.platform import set_platform as set_platform
from hyper_dtensor.spec import Spec as Spec
