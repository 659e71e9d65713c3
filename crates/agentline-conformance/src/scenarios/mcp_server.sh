# An MCP server on standard input and output with one tool, `add`, which adds two numbers from 0 to 9.
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id": *\("[^"]*"\|[0-9][0-9]*\).*/\1/p')
  case $line in
    *'"method":"initialize"'*)
      version=$(printf '%s' "$line" | sed -n 's/.*"protocolVersion": *"\([^"]*\)".*/\1/p')
      answer "{\"protocolVersion\":\"$version\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"kit\",\"version\":\"1.0.0\"}}" ;;
    *'"method":"tools/list"'*)
      answer '{"tools":[{"name":"add","description":"Adds two numbers","inputSchema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}}]}' ;;
    *'"method":"tools/call"'*)
      a=$(printf '%s' "$line" | sed -n 's/.*"a": *\([0-9]\).*/\1/p')
      b=$(printf '%s' "$line" | sed -n 's/.*"b": *\([0-9]\).*/\1/p')
      answer "{\"content\":[{\"type\":\"text\",\"text\":\"the sum is $((a + b))\"}]}" ;;
    *'"method":"ping"'*) answer '{}' ;;
    *'"id":'*) [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}\n' "$id" ;;
  esac
done
