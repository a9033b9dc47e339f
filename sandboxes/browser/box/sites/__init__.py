"""The sites, a module each: a function of the site's state and a request. What is right is not known here."""
