"""Does the linear autoencoder compress best because nothing disturbs its code?"""

from lmzoo.command_line import run_command
from lmzoo.experiments.code_noise import main

if __name__ == "__main__":
    run_command(main)
