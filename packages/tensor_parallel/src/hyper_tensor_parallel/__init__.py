"""Tensor-parallel styles and ``parallelize_module``."""

from hyper_tensor_parallel.colwise import ColwiseParallel as ColwiseParallel
from hyper_tensor_parallel.loss_parallel import loss_parallel as loss_parallel
from hyper_tensor_parallel.no_parallel import NoParallel as NoParallel
from hyper_tensor_parallel.parallelize import parallelize_module as parallelize_module
from hyper_tensor_parallel.prepare import PrepareModuleInput as PrepareModuleInput
from hyper_tensor_parallel.prepare import PrepareModuleInputOutput as PrepareModuleInputOutput
from hyper_tensor_parallel.prepare import PrepareModuleOutput as PrepareModuleOutput
from hyper_tensor_parallel.rowwise import RowwiseParallel as RowwiseParallel
from hyper_tensor_parallel.sequence import SequenceParallel as SequenceParallel
from hyper_tensor_parallel.style import ParallelStyle as ParallelStyle
