#!/bin/bash
python3 "$TEST_DIR/test_square.py"
