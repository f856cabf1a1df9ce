"""``python -m hyper_parallel``."""

from hyper_parallel.cli import app

if __name__ == "__main__":
    app(prog_name="hyper-parallel")
