"""Trains the small language model of train_tp.py with MindSpore: under tensor parallelism, and on one device.

    python examples/train_tp_mindspore.py                    two ranks
    python examples/train_tp_mindspore.py --ranks 4 --tied

The text, the plan and the report are those of train_tp.py; the model is the same in MindSpore's cells. The
processes' losses must be equal; the command ends with an error if they are not.
"""

import contextlib
import functools
import os
import random
import socket
import time
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import mindspore
import typer
from mindspore import Tensor, mint, nn, ops
from mindspore.communication import init
from mindspore.experimental import optim

from hyper_parallel import CommDebugMode, DTensor, init_device_mesh, parallelize_module
from tiny_lm import report
from tiny_lm.comparison import compare
from tiny_lm.data import python_help
from tiny_lm.launch import Job, Say
from tiny_lm.mindspore_model import LanguageModel, initialised
from tiny_lm.recipe import learning_rate_factor, sequence_parallel_plan
from tiny_lm.sizes import Config


class Precision(StrEnum):
    """Dtype of the parameters and of everything computed from them."""

    float64 = "float64"
    float32 = "float32"


TOLERANCES = {
    Precision.float64: report.Tolerance(first_steps=1e-9, whole_run=1e-6),
    Precision.float32: report.Tolerance(first_steps=1e-3, whole_run=1e-3),
}


@dataclass(frozen=True)
class Options:
    """What all processes have in common."""

    steps: int
    precision: Precision
    tied: bool
    batch: int
    seq: int
    seed: int = 0
    learning_rate: float = 3e-3


def train_rank(options: Options, say: Say) -> None:
    """Trains the part of the model that this rank holds."""
    mesh = init_device_mesh("cpu", (int(os.environ["RANK_SIZE"]),), mesh_dim_names=("tp",))
    model = parallelize_module(build_model(options), mesh["tp"], sequence_parallel_plan())
    train(model, options, say)


def train_one_device(options: Options, say: Say) -> None:
    """Trains the whole model."""
    init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    train(build_model(options), options, say)


def schedule(_: Say) -> None:
    """The process by which MindSpore's ranks find each other."""
    mindspore.set_device("CPU")
    init()


def build_model(options: Options) -> LanguageModel:
    """Returns the whole model, the same in every process."""
    config = Config(vocabulary_size=python_help().vocabulary_size, tied=options.tied)
    return initialised(LanguageModel(config), getattr(mindspore, options.precision), options.seed)


def train(model: nn.Cell, options: Options, say: Say) -> None:
    """Trains the model, wherever its parameters lie, and says how it goes."""
    optimizer = optim.AdamW(model.trainable_params(), lr=options.learning_rate)
    batches = python_help().batches(options.steps + 1, options.batch, options.seq, options.seed)

    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        logits = model(inputs)
        return ops.cross_entropy(logits.reshape((-1, logits.shape[-1])), targets.reshape((-1,)))

    loss_and_gradients = mindspore.value_and_grad(loss_of, None, optimizer.parameters)

    def train_step(factor: float) -> float:
        inputs, targets = (Tensor(tokens, mindspore.int32) for tokens in next(batches))
        loss, gradients = loss_and_gradients(inputs, targets)
        rate = optimizer.param_groups[0]["lr"]
        ops.assign(rate, Tensor(options.learning_rate * factor, rate.dtype))
        optimizer(clipped(optimizer.parameters, gradients, max_norm=1.0))
        return float(loss)

    started = time.perf_counter()
    for step in range(options.steps):
        loss = train_step(learning_rate_factor(step, options.steps))
        say(report.Step(loss, time.perf_counter() - started))

    with CommDebugMode() as comm:  # one more step, only to count what it sends
        train_step(0.0)
    held = [p.to_local() if isinstance(p, DTensor) else p for p in model.trainable_params()]
    say(report.Footprint(sum(p.size for p in held), sum(p.nbytes for p in held), dict(comm.counts)))


def clipped(parameters: Any, gradients: Any, max_norm: float) -> list[Tensor]:
    """Returns the gradients scaled so that their total norm is at most `max_norm`; one all_reduce.

    MindSpore gives the gradient of a distributed parameter as this rank's part.
    """
    squares = [
        mint.sum(mint.square(as_distributed(p, g))) for p, g in zip(parameters, gradients, strict=True)
    ]
    total = functools.reduce(mint.add, squares)
    norm = mint.sqrt(total.full_tensor() if isinstance(total, DTensor) else total)
    factor = mint.clamp(max_norm / (norm + 1e-6), max=1.0)
    return [gradient * factor for gradient in gradients]


def as_distributed(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Returns the gradient laid out as its parameter is."""
    if not isinstance(parameter, DTensor):
        return gradient
    return DTensor.from_local(gradient, parameter.device_mesh, parameter.placements)


def free_port() -> int:
    """Returns a port below those of outgoing connections, which ranks make before the scheduler listens."""
    while True:
        port = random.SystemRandom().randrange(20000, 32768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def worker_jobs(options: Options, ranks: int) -> list[Job]:
    """Returns the ranks and the scheduler, with the variables that MindSpore's launcher would set."""
    port = free_port()
    shared = {
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": str(port),
        "MS_WORKER_NUM": str(ranks),
        "RANK_SIZE": str(ranks),
        "MS_RETRY_INTERVAL_LOWER": "0",
        "MS_RETRY_INTERVAL_UPPER": "1",
    }
    scheduler = Job("scheduler", schedule, {**shared, "MS_ROLE": "MS_SCHED"}, background=True)
    own = [{"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank), "RANK_ID": str(rank)} for rank in range(ranks)]
    workers = [
        Job(f"rank {rank}", partial(train_rank, options), {**shared, **names})
        for rank, names in enumerate(own)
    ]
    return [*workers, scheduler]


def main(
    ranks: Annotated[int, typer.Option(min=1, help="Processes that share the model: 1, 2 or 4.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 100,
    dtype: Annotated[Precision, typer.Option(help="Dtype of all processes.")] = Precision.float32,
    tied: Annotated[bool, typer.Option("--tied/--untied", help="One weight for embedding and head?")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Texts per step.")] = 8,
    seq: Annotated[int, typer.Option(min=1, help="Characters per text, a multiple of the ranks.")] = 64,
    out: Annotated[Path, typer.Option(help="Where the loss curves are drawn.")] = Path(
        "out/train_tp_mindspore.png"
    ),
) -> None:
    """Train a small language model under tensor parallelism with MindSpore, and beside it on one device."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GLOG_v", "3")
    options = Options(steps, dtype, tied, batch, seq)
    compare(
        partial(train_one_device, options),
        worker_jobs(options, ranks),
        steps,
        batch * seq,
        TOLERANCES[dtype],
        out,
    )


if __name__ == "__main__":
    typer.run(main)
