"""What every gRPC call passes before its service: access, bounds, the end of a server."""
