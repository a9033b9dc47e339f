"""What a run says of itself while it goes on: to whoever asks from outside, and by itself where something takes too long."""
