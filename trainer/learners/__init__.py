"""What lets a learner hold a real model: recomputed layers, adapters, ranks, and how much memory all of it takes."""
