export function daysBetween(from, to) {
  const [a, b] = [from, to].map((date) => Date.parse(date + "T00:00:00Z"));
  return Math.round((b - a) / 86_400_000);
}
