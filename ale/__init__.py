"""The command line and the library face of ALE."""

from rock_env.moved import tell_of_old_names

tell_of_old_names()
