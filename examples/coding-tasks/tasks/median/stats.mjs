// Returns the median of a list of numbers, or NaN for an empty list. The list stays unchanged.
export function median(numbers) {
  const sorted = numbers.sort();
  return sorted[Math.floor(sorted.length / 2)];
}
