"""The three-stage operator dispatcher, its rows engine, its layout cache and its registry."""

from hyper_dispatch.distributed_op import DistributedOp as DistributedOp
from hyper_dispatch.distributed_op import RowsOp as RowsOp
from hyper_dispatch.distributed_op import layouts_of as layouts_of
from hyper_dispatch.distributed_op import operand_layouts as operand_layouts
from hyper_dispatch.distributed_op import to_local as to_local
from hyper_dispatch.distributed_op import to_locals as to_locals
from hyper_dispatch.effects import NO_EFFECTS as NO_EFFECTS
from hyper_dispatch.effects import Effects as Effects
from hyper_dispatch.errors import RegistryError as RegistryError
from hyper_dispatch.errors import RuleError as RuleError
from hyper_dispatch.registry import find_op as find_op
from hyper_dispatch.registry import load_yaml as load_yaml
from hyper_dispatch.registry import load_yaml_dir as load_yaml_dir
from hyper_dispatch.registry import op_names as op_names
from hyper_dispatch.registry import register_op as register_op
from hyper_dispatch.registry import register_strategy as register_strategy
from hyper_dispatch.rows import INVARIANT as INVARIANT
from hyper_dispatch.rows import ONCE as ONCE
from hyper_dispatch.rows import Row as Row
from hyper_dispatch.rows import Token as Token
from hyper_dispatch.rows import axis_placement as axis_placement
from hyper_dispatch.rows import infer_rows as infer_rows
from hyper_dispatch.rows import row as row
from hyper_dispatch.signature import Signature as Signature
