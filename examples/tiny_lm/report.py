"""What the example shows: progress while it trains, then how the ranks compare with the single device."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

FIRST_STEPS = 50


@dataclass(frozen=True)
class Step:
    """One training step is done.

    Attributes:
        loss: Before the step.
        seconds: Since the first step began.
    """

    loss: float
    seconds: float


@dataclass(frozen=True)
class Footprint:
    """What one process holds, and what it sends in one step.

    Attributes:
        num_parameters: Numbers in this process's parts of the parameters.
        num_bytes: Their bytes.
        collectives: How many collectives of each kind a step takes.
    """

    num_parameters: int
    num_bytes: int
    collectives: Mapping[str, int]


@dataclass(frozen=True)
class Run:
    """The training as one process saw it."""

    name: str
    losses: Sequence[float]
    tokens_per_second: float
    footprint: Footprint


@dataclass(frozen=True)
class Tolerance:
    """The relative difference up to which two losses count as equal."""

    first_steps: float
    whole_run: float


def collect(
    messages: Iterable[tuple[str, Step | Footprint]],
    names: Sequence[str],
    num_steps: int,
    tokens_per_step: int,
) -> list[Run]:
    """Shows a progress bar per process until the messages end, and returns what each process saw."""
    steps: dict[str, list[Step]] = {name: [] for name in names}
    footprints: dict[str, Footprint] = {}

    def speed(name: str) -> float:
        return tokens_per_step * len(steps[name]) / steps[name][-1].seconds

    state = TextColumn("{task.fields[state]}")
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), state) as progress:
        bars = {name: progress.add_task(name, total=num_steps, state="starting") for name in names}
        for name, message in messages:
            if isinstance(message, Footprint):
                footprints[name] = message
                continue
            steps[name].append(message)
            progress.update(
                bars[name], advance=1, state=f"loss {message.loss:.3f}  {speed(name):,.0f} tokens/s"
            )
    return [Run(name, [step.loss for step in steps[name]], speed(name), footprints[name]) for name in names]


def differences(single: Run, ranks: Sequence[Run]) -> list[float]:
    """Returns for each step the largest relative difference of a rank's loss from the single device's."""
    per_step = zip(single.losses, *(rank.losses for rank in ranks), strict=True)
    return [max(abs(loss - expected) / abs(expected) for loss in losses) for expected, *losses in per_step]


def print_report(single: Run, ranks: Sequence[Run], tolerance: Tolerance) -> bool:
    """Prints how the ranks compare, and returns whether the losses are equal within the tolerance."""
    runs = [single, *ranks]
    table = Table("", *(run.name for run in runs), box=box.SIMPLE, caption="All processes share the cores.")
    table.add_row("first loss", *(f"{run.losses[0]:.6f}" for run in runs))
    table.add_row("last loss", *(f"{run.losses[-1]:.6f}" for run in runs))
    table.add_row("tokens/s", *(f"{run.tokens_per_second:,.0f}" for run in runs))
    table.add_row("parameters", *(f"{run.footprint.num_parameters:,}" for run in runs))
    table.add_row("bytes of them", *(f"{run.footprint.num_bytes:,}" for run in runs))
    for kind in sorted({kind for run in runs for kind in run.footprint.collectives}):
        table.add_row(f"{kind}/step", *(str(run.footprint.collectives.get(kind, 0)) for run in runs))
    console = Console()
    console.print(table)

    relative = differences(single, ranks)
    parts = {
        f"the first {min(FIRST_STEPS, len(relative))} steps": (relative[:FIRST_STEPS], tolerance.first_steps),
        "the run": (relative, tolerance.whole_run),
    }
    console.print("Largest relative difference of a rank's loss from the single device's")
    all_equal = True
    for part, (found, allowed) in parts.items():
        equal = all(difference <= allowed for difference in found)  # false for NaN as well
        verdict = "[green]equal[/]" if equal else "[bold red]NOT EQUAL[/]"
        console.print(f"  over {part}: {max(found):.1e}, allowed {allowed:.0e}: {verdict}")
        all_equal = all_equal and equal
    return all_equal


def plot(single: Run, ranks: Sequence[Run], path: Path) -> None:
    """Draws the loss curves, and their relative difference, into a PNG file."""
    import matplotlib  # here, because every process imports this file and only one draws

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (losses, apart) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 7), height_ratios=(2, 1))
    losses.plot(single.losses, label=single.name, color="tab:orange", linewidth=5, alpha=0.5)
    losses.plot(ranks[0].losses, label=f"{len(ranks)} ranks", color="tab:blue", linewidth=1)
    losses.set(ylabel="loss", title="The same training on one device and under tensor parallelism")
    losses.legend()
    drawable = [max(difference, 1e-17) for difference in differences(single, ranks)]  # the axis has no zero
    apart.semilogy(drawable, color="tab:gray")
    apart.set(xlabel="step", ylabel="relative difference")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
