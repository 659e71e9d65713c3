// Returns the text in lower case, with every run of other characters than letters and digits replaced by one
// hyphen, and without hyphens at the ends: "Hello, World!" becomes "hello-world". Accents are dropped: "é" becomes "e".
export function slugify(text) {
  throw new Error("not implemented");
}
