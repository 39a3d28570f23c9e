"""The open door: results, commands and candidates that lmzoo did not train."""
