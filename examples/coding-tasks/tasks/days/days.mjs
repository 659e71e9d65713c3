// Returns the number of days from one date to another, both as "2024-03-30".
export function daysBetween(from, to) {
  const [a, b] = [from, to].map((date) => new Date(`${date}T00:00:00`));
  return Math.floor((b - a) / 86_400_000);
}
