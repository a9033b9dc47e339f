#!/bin/bash
cd /data/share
find . -type d -exec chmod 750 {} +
find . -type f -name '*.txt' -exec chmod 640 {} +
find . -type f -name '*.sh' -exec chmod 750 {} +
find . -type f -name '.*' -exec chmod 400 {} +
