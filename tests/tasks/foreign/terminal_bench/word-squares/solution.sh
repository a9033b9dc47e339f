#!/bin/bash
printf '%s\n' card area rear dart > /app/square.txt
