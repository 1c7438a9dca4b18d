// The page for a browser that is not signed in: a sign-in leads back to the part that was asked for.

// door is where such a sign-in begins.
export const door = () => "./sign-in?to=" + encodeURIComponent(location.hash);

const link = document.getElementById("sign-in");
if (link && location.hash) link.search = "?to=" + encodeURIComponent(location.hash);
