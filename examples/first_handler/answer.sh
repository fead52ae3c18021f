# The batch is JSON on stdin; QUELL_KEY, QUELL_ATTEMPT, QUELL_TOKEN and others are in the environment.
answer=$(jq -r '"you said: " + ([.events[].payload.text] | join(", "))') || exit 65  # 65: failed for good
echo "$QUELL_KEY $answer" >> answers.txt || exit 1                                   # 1: try it again
jq -c -n --arg answer "$answer" '{result: {answer: $answer}}'                        # 0: done, with a result
