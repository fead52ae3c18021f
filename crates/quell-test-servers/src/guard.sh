# Waits beside a server for the process that started it. Standard input is a pipe from that process: it names the
# server's process id after each start and says `done` when it has cleaned up by itself. If the pipe ends without that,
# the process is gone (killed, Ctrl+C, a crash), and the server and its folder are ended here.
#
# Arguments: the folder; the signal that makes the server end at once.
folder=$1
signal=$2
trap '' HUP INT QUIT TERM

pid=
while read -r word rest; do
  case $word in
    pid) pid=$rest ;;
    done) exit 0 ;;
  esac
done

# A process id may have been given to a stranger meanwhile; our servers stand in their folder.
ours() {
  if [ -d /proc/self ]; then
    case $(readlink "/proc/$pid/cwd") in
      "$folder" | "$folder"/*) return 0 ;;
      *) return 1 ;;
    esac
  fi
  kill -0 "$pid"
}

if [ -n "$pid" ] && ours; then
  kill -s "$signal" "$pid"
  tries=0
  while ours && [ "$tries" -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  ours && kill -s KILL "$pid"
fi
rm -rf -- "$folder"
