#!/bin/bash
# Takes the options of an Ascend operator project's run.sh and runs produce.py instead of a kernel.
set -e
while getopts "r:v:" option; do
    case $option in
        r) mode=$OPTARG ;;
        v) version=$OPTARG ;;
        *) exit 2 ;;
    esac
done
echo "mode $mode, chip $version"
"${PYTHON:-python3}" produce.py
