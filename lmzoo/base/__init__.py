"""The ground of both houses: configs, errors, named parts, search spaces, command lines."""
