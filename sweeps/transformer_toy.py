"""Does a post-LN transformer need warm-up, and which initial weights let it learn?"""

from lmzoo.command_line import run_command
from lmzoo.experiments.transformer_toy_grid import main

if __name__ == "__main__":
    run_command(main)
