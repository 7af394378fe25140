"""The command line: one file per command, one line each in ``main.COMMANDS``.

Only here is anything printed or an exit code chosen.
"""
