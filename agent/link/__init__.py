"""The link between an agent and the guards of its Pod: the agent's end."""
