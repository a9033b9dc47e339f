"""What samplers, learners and models promise each other: networks, token samplers, train engines, specs."""
