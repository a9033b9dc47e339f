"""What crosses the wire: protobuf messages from and to the domain's types, routes, addresses."""
