#!/bin/bash
cp "$(dirname "$0")/rotate.sh" /srv/backup/rotate.sh
chmod 755 /srv/backup/rotate.sh
