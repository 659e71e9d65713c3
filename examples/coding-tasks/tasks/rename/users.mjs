const users = [{ id: 1, name: "Ada" }];

export function getUser(id) {
  return users.find((user) => user.id === id);
}
