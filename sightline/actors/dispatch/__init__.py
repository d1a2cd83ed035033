"""Dispatch: the index of ONLINE operators, the dispatcher actor, and the steps that claim an operator."""
