"""What losses and credits are made of: returns, ratios, masks, corrections."""
