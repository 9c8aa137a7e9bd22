# Nothing of the environment is left; the mark is still among the words.
env -i "$(command -v sh)" -c 'PATH=/usr/bin:/bin; sleep 100; :' "$0" &
exit 0
