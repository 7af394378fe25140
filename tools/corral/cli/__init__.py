"""The command line: one file per command, one line each in ``main.COMMANDS``.

A command's module has its ``--help`` (the docstring), ``add_arguments(parser)``, and ``run(args)``, which returns an
exit code (None: 0).  Only here is anything printed or an exit code chosen.
"""
