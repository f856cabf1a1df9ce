"""A platform in NumPy, for tests of the core packages: ranks are threads of one process.

    from tests.support import simulated as sim

    def program():
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        x = DTensor.from_local(sim.tensor([1.0], requires_grad=True), mesh, [Shard(0)])
        x.full_tensor().sum().backward()
        return x.grad.full_tensor().tolist()

    assert sim.run_ranks(2, program) == [[1.0, 1.0]] * 2

Files: ``world`` (threads and rendezvous), ``tensor``, ``tape`` and ``ops`` (NumPy with gradients),
``platform`` (the protocol), ``dtensor``, ``functional`` (operations on both kinds of tensors), ``modules``.
"""

from tests.support.simulated.dtensor import SimDTensor as SimDTensor
from tests.support.simulated.dtensor import grad as grad
from tests.support.simulated.modules import SimEmbedding as SimEmbedding
from tests.support.simulated.modules import SimLinear as SimLinear
from tests.support.simulated.modules import SimModule as SimModule
from tests.support.simulated.modules import SimSequential as SimSequential
from tests.support.simulated.ops import tensor as tensor
from tests.support.simulated.platform import SimulatedPlatform as SimulatedPlatform
from tests.support.simulated.platform import gather as gather
from tests.support.simulated.platform import manual_seed as manual_seed
from tests.support.simulated.platform import simulated_platform as simulated_platform
from tests.support.simulated.tape import enable_grad as enable_grad
from tests.support.simulated.tape import grad_mode as grad_mode
from tests.support.simulated.tape import no_grad as no_grad
from tests.support.simulated.tensor import SimParameter as SimParameter
from tests.support.simulated.tensor import SimTensor as SimTensor
from tests.support.simulated.world import BrokenRendezvousError as BrokenRendezvousError
from tests.support.simulated.world import World as World
from tests.support.simulated.world import errors_of as errors_of
from tests.support.simulated.world import rank as rank
from tests.support.simulated.world import run_ranks as run_ranks
from tests.support.simulated.world import world_size as world_size
