#!/bin/sh
# Saves the plan, and writes it into the summary of the run and into one comment on the pull request,
# which it replaces: also if plan fails, with the error. It exits as plan does.
#
# What follows is the step plan of templates/ci/github-actions.yml; a test keeps both the same.
set -e
code=0
dlxctl plan -f "$FILES" --require-rights --save "$PLAN" -o markdown >plan.md 2>plan.log || code=$?
cat plan.log >&2
# 3: a change is blocked, or a deletion is not listed under removed:
if [ $code != 0 ] && [ $code != 3 ]; then
  { echo; echo "dlxctl plan failed:"; echo '```'; cat plan.log; echo '```'; } >>plan.md
fi
{ echo "<!-- dlxctl $ENVIRONMENT -->"; echo "**$ENVIRONMENT**"; echo; cat plan.md; } >comment.md
cat comment.md >>"$GITHUB_STEP_SUMMARY"
if [ -n "$PR" ]; then # the comment replaces that of the last run
  id=$(gh api --paginate "repos/$GITHUB_REPOSITORY/issues/$PR/comments" \
    --jq ".[] | select(.body | startswith(\"<!-- dlxctl $ENVIRONMENT -->\")) | .id")
  if [ -n "$id" ]; then
    gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" --field body=@comment.md
  else
    gh api --silent --method POST "repos/$GITHUB_REPOSITORY/issues/$PR/comments" --field body=@comment.md
  fi
fi
exit $code
