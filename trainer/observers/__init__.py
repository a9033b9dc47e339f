"""Who is told what a run measures, record by record: TensorBoard, and others by entry point (docs/observers.md)."""
