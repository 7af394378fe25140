# An editor's file: a name that begins with a dot is no part of the agent.
