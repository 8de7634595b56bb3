"""`rubricsvc demo`: a policy learns to search, open and cite in Python's language reference, with a report."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from rubricsvc.cli.output import OK, Seed, echo
from rubricsvc.errors import ConflictError

RUN = "research"  # the folder of the run
REPORT = "report.html"
SETTINGS = "rubricsvc.toml"
"""It makes the folder a project of its own: commands that are run there use its database and collections."""
TEMPLATE = Path(__file__).with_name("demo.toml")

SIZE = {"steps": 6, "demonstration_steps": 14, "prompts_per_step": 4, "group_size": 8, "held_out": 0.5, "samples": 1}
"""What the template has of the demo."""


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the demo, with its database and report.")] = Path("demo-out"),
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the evaluations as JSON.")] = False,
) -> None:
    """Train a policy to search, open and cite documents, with a report.

    Every command is printed before it is run. Run the same command again to continue an interrupted demo.
    """
    run_demo(out, SIZE, seed, as_json=as_json)


def run_demo(out: Path, size: Mapping[str, float], seed: int, *, as_json: bool = False) -> None:
    """Run the commands of the demo that were not run yet in its folder."""
    for package in ("altair", "torch", "transformers"):
        import_module(package)  # fail now rather than after ten minutes
    begun = open_folder(out, size, seed)
    echo(f"{'continuing' if begun else 'beginning'} the demo in {out}; it ends with {out / REPORT}")
    with project(out):
        with redirect_stdout(sys.stderr):
            if not Path(REPORT).is_file():
                train()
                run_command("runs", "report", RUN, "--out", REPORT)
        for state in Path(RUN).rglob("optimizer.safetensors"):
            state.unlink()  # 1.6 GB, which only further training needs
        run_command("runs", "show", RUN, "--evaluations", *(["--json"] if as_json else []))
    echo(f"look at {out / REPORT}; cd {out} to use its database: rubricsvc runs show")


def train() -> None:
    """Run the commands up to the trained policy that were not run yet in this folder."""
    if not Path("collections").is_dir():
        run_command("collections", "add", "python", "--python")
    if not Path("tasks.jsonl").is_file():
        capabilities = ("--capability", "define", "--capability", "changes", "--limit", "60")
        run_command("prompts", "synthesize", "python", *capabilities, "--out", "tasks.jsonl")
    run_command("judges", "add", "embedded", "--embedded", "--no-probe")
    run_command("runs", "start", "research.toml", *(["--resume"] if Path(RUN).is_dir() else []))


def run_command(*command: str) -> None:
    """Print a command of `rubricsvc`, and run it in this process."""
    from rubricsvc.cli.main import run

    echo(f"\n$ rubricsvc {' '.join(command)}")
    if (code := run(command)) != OK:
        raise typer.Exit(code)


def open_folder(out: Path, size: Mapping[str, float], seed: int) -> bool:
    """Create the folder, or continue in it; return whether it has a demo, which must be of the same size and seed."""
    config, text = out / "research.toml", TEMPLATE.read_text(encoding="utf-8").format(seed=seed, **size)
    if config.is_file():
        if config.read_text(encoding="utf-8") != text:
            hint = "choose another folder with --out, or remove it"
            raise ConflictError(f"{out} has a demo with other settings", hint=hint)
        return True
    out.mkdir(parents=True, exist_ok=True)
    (out / SETTINGS).write_text('database_url = "sqlite:///rubricsvc.db"\ncollections_dir = "collections"\n')
    config.write_text(text, encoding="utf-8")
    return False


@contextmanager
def project(folder: Path) -> Iterator[None]:
    """Work in the folder, with its settings."""
    from rubricsvc.settings import get_settings

    names = ("URL", "DATABASE_URL", "COLLECTIONS_DIR", "BROKER_URL")
    others = {name: value for one in names if (value := os.environ.pop(name := f"RUBRICSVC_{one}", None)) is not None}
    with chdir(folder):
        get_settings.cache_clear()
        try:
            yield
        finally:
            os.environ.update(others)
            get_settings.cache_clear()
