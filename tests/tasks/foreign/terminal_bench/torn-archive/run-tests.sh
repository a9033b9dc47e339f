#!/bin/bash
bash "$TEST_DIR/test_restored.sh"
