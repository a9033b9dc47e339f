"""`ale console`: a page of this machine to look at runs, rollouts and tokens. It only reads."""
