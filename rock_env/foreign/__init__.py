"""What somebody else made is read with bounds: `budget` for records and documents, `archive` for tars."""
