"""What runs inside a browser's sandbox: the driver, the web server and the sites. Standard library and Playwright alone."""
