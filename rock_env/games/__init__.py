"""Games without a sandbox as environments: of other libraries, and of a class of the user's own."""
