"""Package rock.v1."""
